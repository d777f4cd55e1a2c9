"""Style sheet of the report: light, dark, phone and paper. All text has a contrast of at least 4.5."""

CSS = """
:root{color-scheme:light dark;--ink:#202124;--soft:#55585e;--page:#f6f5f2;--card:#fff;--line:#d9d7d2;--blue:#0a5c8f;
--vote:#0072b2;--vote-rgb:0,114,178;--other:#d55e00;--mark:#fbe3a8;--mark-rgb:242,193,78}
@media screen and (prefers-color-scheme:dark){:root{--ink:#e6e6e3;--soft:#a9adb4;--page:#121316;--card:#1b1d21;
--line:#36393f;--blue:#7cc0ee;--vote:#56b4e9;--vote-rgb:86,180,233;--other:#e69f00;--mark:#5c4a17;--mark-rgb:160,120,20}}
*{box-sizing:border-box}
html{font:16px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif;background:var(--page);color:var(--ink)}
body{margin:0 auto;max-width:66rem;padding:2rem 1.25rem 4rem}
h1{font-size:2rem;line-height:1.2;margin:0 0 .5rem}
h2{font-size:1.35rem;margin:0 0 1rem}
h3{font-size:1.1rem;margin:2rem 0 .25rem}
h4{font-size:1rem;font-weight:400;margin:0 0 .75rem}
p{margin:.5rem 0;max-width:44rem}
a{color:var(--blue)}
.lead{font-size:1.1rem;color:var(--soft)}
.warning{border-left:.25rem solid var(--other);padding:.25rem 0 .25rem .75rem}
.note,figcaption,caption,footer{color:var(--soft);font-size:.9rem}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;padding:0;margin:1.25rem 0}
section{background:var(--card);border:1px solid var(--line);border-radius:.75rem;padding:1.5rem;margin:1.5rem 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(17.5rem,1fr));gap:1.5rem;margin:0}
.tiles dt{color:var(--soft);font-size:.9rem}
.tiles dd{margin:0}
.tiles strong{font-size:2rem;font-weight:600;line-height:1.3}
.tiles p{margin:0;font-size:.9rem}
.wide{overflow-x:auto;margin:1rem 0}
table{border-collapse:collapse;font-size:.9rem;min-width:min(100%,30rem)}
caption{text-align:left;padding:0 0 .35rem;font-weight:600}
th,td{text-align:left;vertical-align:top;padding:.35rem .9rem .35rem 0;border-bottom:1px solid var(--line);
overflow-wrap:break-word;min-width:4.5rem;max-width:30rem}
.facts td:last-child{min-width:16rem}
thead th{color:var(--soft);font-weight:500;vertical-align:bottom}
tbody th{font-weight:600}
.number{text-align:right;font-variant-numeric:tabular-nums}
mark{background:var(--mark);color:inherit;border-radius:.2rem;padding:0 .25rem;font-weight:600}
figure{margin:0}
.chart{margin:1.25rem 0}
.panels{display:flex;flex-wrap:wrap;gap:1rem}
.chart img{max-width:100%;height:auto;display:block}
.strip-of-charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,17rem),1fr));gap:1.5rem;margin-top:1.5rem}
.strip-of-charts .chart{margin:0}
.points{margin:0}
.points div{display:grid;grid-template-columns:12.5rem 1fr;gap:.15rem 1rem;padding:.45rem 0;
border-bottom:1px solid var(--line)}
.points dt{font-weight:600}
.points dd{margin:0;max-width:46rem}
.confusion td{background:rgba(var(--vote-rgb),calc(.45*var(--share,0)));padding-right:.5rem;min-width:3rem}
.confusion th{min-width:3rem}
.confusion thead th{max-width:8rem}
details{border-top:1px solid var(--line);padding:.75rem 0}
summary{cursor:pointer}
summary h3{display:inline;margin:0 .6rem 0 0}
@media screen and (max-width:50rem){.points div{grid-template-columns:1fr}section{padding:1rem}
body{padding:1.25rem .75rem}
td:not(.number){min-width:8rem}.votes td:not(.number){min-width:4.5rem}
.facts thead{display:none}.facts tr,.facts th,.facts td{display:block}.facts tr{border-bottom:1px solid var(--line);
padding:.4rem 0}.facts th,.facts td,.facts td:last-child{border:0;padding:0;min-width:0}
.worths table,.worths caption,.worths thead,.worths tbody{display:block}.worths tr{display:grid;
grid-template-columns:1fr 7.6rem 3.6rem 4.2rem;gap:.1rem .5rem;border-bottom:1px solid var(--line);padding:.4rem 0}
.worths th,.worths td,.worths td:not(.number){border:0;padding:0;min-width:0;overflow-wrap:anywhere}
.worths td.number,.worths thead th{overflow-wrap:normal}.worths td.number{white-space:nowrap}
.worths tr>:first-child,.worths td:last-child{grid-column:1/-1}.worths thead th:last-child{display:none}
.tight th,.tight td,.tight td:not(.number){min-width:0;padding-right:.4rem}.tight table{font-size:.85rem}}
.chart figcaption{max-width:44rem;margin-top:.5rem}
.case{border-top:1px solid var(--line);padding:1.25rem 0 .5rem;margin-top:1rem;break-inside:avoid}
.verdict{border:1px solid currentColor;border-radius:1rem;padding:.05rem .6rem;font-size:.85rem;margin-left:.4rem;
white-space:nowrap}
.sentences p{margin:.15rem 0}
.strip{display:flex;flex-wrap:wrap;gap:1rem;margin:.75rem 0}
.strip figure{width:7.5rem;font-size:.85rem}
.strip img,.strip .note{width:7.5rem;border:2px solid transparent;border-radius:.25rem;display:block}
.strip figure:first-child img{border-color:var(--ink)}
.strip .other img{border:2px dashed var(--other)}
td img{max-width:4rem;display:block}
img.pixels{image-rendering:pixelated;width:100%}
td img.pixels{width:3rem}
.track{display:inline-block;vertical-align:middle;width:4rem;height:.6rem;background:var(--line);border-radius:.15rem;
overflow:hidden;margin-right:.4rem}
.bar{display:block;height:100%;background:var(--vote)}
.bar.other{background:repeating-linear-gradient(45deg,var(--other) 0 3px,transparent 3px 6px)}
.strip .track,.votes .track{display:block;width:100%;max-width:6rem;margin:.2rem 0}
.share{font-variant-numeric:tabular-nums;white-space:nowrap}
.words{font-size:1.05rem;line-height:1.9}
.words span{background:rgba(var(--mark-rgb),calc(var(--read,0)));border-radius:.2rem;padding:.1rem .15rem;
unicode-bidi:isolate}
footer{margin-top:2rem}
@page{margin:14mm}
@media print{html{font-size:12px;background:#fff}body{max-width:none;padding:0}nav{display:none}
.wide{overflow:visible}table{font-size:.8rem}.confusion table{font-size:.7rem}
th,td{min-width:0;padding:.2rem .5rem .2rem 0}
h2,h3,h4,caption,summary{break-after:avoid}section{border:0;padding:0;margin:1.5rem 0;break-before:auto}
figure,tr,.short,.points div,.tiles>div{break-inside:avoid}thead{display:table-header-group}
#summary{break-after:page}#limits{break-inside:avoid}p,li{orphans:3;widows:3}.strip-of-charts{grid-template-columns:repeat(3,1fr);gap:1rem}
.panels img{max-width:48%}.strip-of-charts img{max-width:100%}.panels img:only-child{max-width:46%}
.strip-of-charts .panels img{max-width:100%}details{border:0}summary{list-style:none}
.bar,.track,mark,.words span,.confusion td{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
@media print{details::details-content{content-visibility:visible;height:auto}}
""".replace("\n", "")
