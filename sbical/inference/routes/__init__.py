"""Ways from recordings to a posterior, one file each, and what they share."""
