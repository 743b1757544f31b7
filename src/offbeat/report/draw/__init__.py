"""How figures are described and drawn."""
