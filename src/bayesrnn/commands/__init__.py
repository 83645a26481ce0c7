"""The commands of the program: their arguments, and the functions of tasks/ that do the work."""
