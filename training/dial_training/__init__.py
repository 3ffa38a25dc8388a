"""From experiments in the lab to a data set, to models, to their accuracy."""
