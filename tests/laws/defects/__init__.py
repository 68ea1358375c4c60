"""A deliberate defect for each law, a file for each file of laws."""
