"""MuJoCo under drawn parameters: effects written into a model, rolled out on a cluster, kept, replayed."""
