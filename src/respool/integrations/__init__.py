"""respool inside the clients and frameworks that people build agents with."""
