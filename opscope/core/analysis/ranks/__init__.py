"""The joint behaviour of many ranks: collectives, late ranks, outliers."""
