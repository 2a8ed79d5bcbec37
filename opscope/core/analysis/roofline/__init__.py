"""How near work comes to the device's limits: from the models of costs and from counters."""
