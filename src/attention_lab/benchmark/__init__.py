"""What attention costs against sequence length, and how fast the networks are beside those of other libraries."""
