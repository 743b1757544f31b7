"""Steps: torch's optimizers over one flat vector, layer-wise ones, schedules, and a delay for any of them."""
