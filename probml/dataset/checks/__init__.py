"""What is said of data before anything is fitted."""
