"""Run folders: the one place that reads them, and how their files are written. A folder is data, whoever made it."""
