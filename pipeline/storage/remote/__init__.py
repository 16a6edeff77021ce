"""Objects in object stores and on web servers, read by range requests through obstore."""
