"""What lies outside of this program: files, threads, the collector, other devices, processes."""
