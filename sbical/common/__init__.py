"""What every part uses: units, progress, the catalog, statistics of draws."""
