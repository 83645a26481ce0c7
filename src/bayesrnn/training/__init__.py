"""The training loop, its schedules, and the files that keep its work safe."""
