"""Tables, charts, shaded words and pages: a toolkit that knows no run."""
