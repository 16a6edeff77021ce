"""What the harnesses share."""
