"""The papers' tables and figures: recipes, their cells, and what becomes of each claim."""
