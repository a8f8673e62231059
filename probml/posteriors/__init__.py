"""What is known of the parameters: closed forms, draws, normal distributions."""
