"""What a finished run shows to people and programs: panel, JSON, result files, trace."""
