"""EM from many starts at once: its accelerated steps on the device, all restarts to their ends."""
