# The course with all that it needs, so that it runs without a network.
#
#   docker build -t mpcourse --build-arg TORCH_INDEX=ADDRESS .
#   docker run --init -it --rm --shm-size=1g -p 127.0.0.1:8888:8888 -v mycourse:/course mpcourse
#
# ADDRESS: of the package index that https://pytorch.org/get-started/locally/ shows after --index-url for your choice of
# "CPU" or CUDA. Without it torch is pip's own choice, on Linux a CUDA build, and the image several gigabytes larger. The
# last line of the build says what was taken.
#
# Python's minor version and Debian's release are named, not a digest: a new build brings the security updates of both.
# All Python packages have the versions that constraints.txt pins.

FROM python:3.11-slim-bookworm AS wheels
ARG TORCH_INDEX=
WORKDIR /build
COPY constraints.txt ./
# In a layer of its own, for it is the largest. What it needs comes with the rest: an index with torch may lack that.
RUN pip download --no-deps --dest /wheels "$(grep '^torch==' constraints.txt)" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}
COPY . ./
RUN pip wheel --wheel-dir /wheels --find-links /wheels --constraint constraints.txt '.[test,mpich]' uv

FROM python:3.11-slim-bookworm
# Of these, the course in /course needs none. They are for a clone: make, git, and git's access by ssh.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git make openssh-client \
    && rm -rf /var/lib/apt/lists/*
COPY --from=wheels /wheels /wheels
# They stay, and pip and uv look nowhere else: so does `make setup` in a clone that is mounted here.
ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/mpcourse \
    && /opt/mpcourse/bin/pip install --no-cache-dir --quiet 'mpcourse[mpich]' \
    && echo "mpcourse: the image holds $(basename /wheels/torch-*.whl), $(du -sh /opt/mpcourse | cut -f1) in the" \
        "environment /opt/mpcourse and $(du -sh /wheels | cut -f1) in /wheels"
# A login shell, such as one of JupyterLab's terminals, would forget the path.
RUN echo 'PATH=/opt/mpcourse/bin:$PATH' > /etc/profile.d/mpcourse.sh \
    && useradd --create-home --shell /bin/bash learner \
    && install -d -o learner -g learner /course
ENV PATH=/opt/mpcourse/bin:$PATH
COPY docker/entrypoint.sh /opt/mpcourse/entrypoint.sh
USER learner
WORKDIR /course
EXPOSE 8888
ENTRYPOINT ["sh", "/opt/mpcourse/entrypoint.sh"]
CMD ["mpcourse", "lab", "--ip=0.0.0.0", "--no-browser"]
