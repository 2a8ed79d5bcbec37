"""How near work comes to the device's limits: by the models of costs and by counters."""
