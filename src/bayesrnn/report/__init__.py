"""The only writer of result tables, charts and pages. Reads run directories."""
