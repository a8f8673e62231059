"""What a user holds: models, fits, explanations."""
