"""From log files to the experiment that is replayed: recordings, windows, commands, initial states."""
