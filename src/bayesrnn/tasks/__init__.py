"""The only place that assembles all parts; one short file per task."""
