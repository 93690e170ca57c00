"""What clients of `bbfs serve` are told to be there: lists of resources, directories, templates; walks and pages."""
