"""Real engines, all but the transport: control, server, workers and journal, written against four protocols."""
