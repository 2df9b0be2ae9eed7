"""A measurement on its way into a model repo: one commit or one pull request, nothing lost.

Pure, bytes and values in, bytes and values out:

``splice``    values inside a ``config.json`` changed, every other byte as it was
``spans``     where the values of a JSON text stand, and in which style they are written
``entries``   measurements → the new values of a section
``refusals``  what may not be published, and the last look at the changed file
``compare``   what was measured against what the repo holds now
``readme``    the block between our two markers in a model card
``receipts``  the names of the files that carry a measurement in full
``content``   all of them together: the files of a repo → the same with the measurements in them
``diff``      a change as people read it

With the Hub:

``hub``       the one module of the maintainers' commands that talks to it
``watched``   one call to it, with a time limit, and what its failure means
``outcomes``  what a call and a publication can come to, as closed sets
``snapshot``  what is read of a repo, all at one commit
``retry``     how often, how long, and what is said meanwhile
``goals``     where it is written to: a branch, a new pull request, or the one of ours that is open
``pulls``     our own pull request, found again
``conflicts`` whether somebody else wrote what we write meanwhile
``advice``    what a person can do about a failure
``publish``   the steps, in order
"""
