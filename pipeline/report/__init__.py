"""What a person and a program see of a finished run."""
