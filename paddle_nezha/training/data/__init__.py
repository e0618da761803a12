"""Labelled files to records: the layouts that Chinese corpora really have, told from their content. Needs no Paddle."""
