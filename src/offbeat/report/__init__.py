"""Reports: tables and figures from run folders. Imports neither torch nor engines."""
