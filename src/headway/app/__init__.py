"""Layer 8: the command line.  A file for each command; `settings`, `training` and `report` hold what they share."""
