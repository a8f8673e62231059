"""Where engines start: prior means, labelled rows, modes."""
