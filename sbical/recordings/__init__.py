"""From log files to the plan of what is replayed: recordings, windows, commands, initial states."""
