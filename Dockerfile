# A service for one model. The model is mounted, not built in: the image serves any.
#
#   docker build -t dwac .
#   docker run -p 8000:8000 -e DWAC_TOKEN -v "$PWD/model:/model:ro" -v dwac-state:/state dwac
#
# More workers: … dwac serve /model --host 0.0.0.0 --port 8000 --monitor-state /state --workers 4
FROM python:3.12-slim AS build
ARG EXTRAS=cli,image,server
WORKDIR /build
RUN python -m venv /opt/dwac
# Without a GPU, the build of PyTorch for CPUs is a tenth of the size.
RUN /opt/dwac/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "torch>=2.6,<2.14"
COPY pyproject.toml README.md LICENSE MANIFEST.in ./
COPY src src
RUN /opt/dwac/bin/pip install --no-cache-dir ".[${EXTRAS}]"

FROM python:3.12-slim
COPY --from=build /opt/dwac /opt/dwac
RUN useradd --system --uid 10001 --user-group --no-create-home dwac \
    && install --directory --owner dwac --group dwac /state
ENV PATH="/opt/dwac/bin:$PATH" HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
VOLUME /state
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/v1/health/ready', timeout=4)"]
ENTRYPOINT ["dwac"]
CMD ["serve", "/model", "--host", "0.0.0.0", "--port", "8000", "--monitor-state", "/state"]
