# respool's proxy in a container:
#   docker build -t respool . && docker run -p 127.0.0.1:7733:7733 -e RESPOOL_TOKEN=… respool
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY docs ./docs
COPY src ./src
RUN python -m venv /opt/respool && /opt/respool/bin/pip install --no-cache-dir '.[serve,postgres]'

FROM python:3.13-slim
RUN useradd --create-home --uid 1000 respool && install -d -o respool /var/lib/respool
COPY --from=build /opt/respool /opt/respool
ENV PATH=/opt/respool/bin:$PATH \
    RESPOOL_STORE=/var/lib/respool/respool.db
USER 1000
WORKDIR /home/respool
VOLUME /var/lib/respool
EXPOSE 7733
HEALTHCHECK --interval=30s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7733/healthz', timeout=2)"]
# Other machines reach it only with the token in RESPOOL_TOKEN; without one it does not start.
ENTRYPOINT ["respool"]
CMD ["serve", "--host", "0.0.0.0"]
