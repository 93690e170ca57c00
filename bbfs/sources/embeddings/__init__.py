"""Vectors of texts: from an endpoint that speaks OpenAI's protocol, or by a static model in a local folder."""
