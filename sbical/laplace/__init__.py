"""The likelihood and the posterior's shape around its modes: Gauss-Newton, boxes, ridges. No torch."""
