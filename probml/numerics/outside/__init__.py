"""What lies outside of this program: files, reading threads, other devices, processes."""
