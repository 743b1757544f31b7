"""The papers' tables and figures as complete runs."""
