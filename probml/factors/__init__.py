"""The waist: parameters and rows → log factors → evidence of each row."""
