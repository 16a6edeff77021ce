"""What a run will need, before it starts: chunks, passes, memory, disk, seconds."""
