"""REST APIs (`type = "api"`), by their OpenAPI documents."""
