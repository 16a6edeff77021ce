"""The courses' studies: cases, references and conclusions."""
