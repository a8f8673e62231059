"""What a traced program says: the only room that reads jaxprs."""
