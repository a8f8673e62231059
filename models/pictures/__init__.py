"""Pictures of fitted models: densities, ellipses, responsibilities, profiles, confusions, networks,
reliability, choosing k, states along time, bands of predictions, intervals, learning, effects of
groups, parts of time series, biplots."""

from probml.models.pictures.by_kind import picture as picture
from probml.models.pictures.canvas import COLOURS as COLOURS
from probml.models.pictures.densities import density as density
from probml.models.pictures.densities import ellipses as ellipses
from probml.models.pictures.densities import profile as profile
from probml.models.pictures.densities import responsibilities as responsibilities
from probml.models.pictures.forests import forest as forest
from probml.models.pictures.latent_pictures import biplot as biplot
from probml.models.pictures.latent_pictures import components as components
from probml.models.pictures.latent_pictures import effects as effects
from probml.models.pictures.network_pictures import draw_network as draw_network
from probml.models.pictures.ranks import calibration as calibration
from probml.models.pictures.regressions import effects_of as effects_of
from probml.models.pictures.regressions import qq as qq
from probml.models.pictures.regressions import residuals as residuals
from probml.models.pictures.reliability_pictures import reliability as reliability
from probml.models.pictures.scores import choosing as choosing
from probml.models.pictures.scores import comparison as comparison
from probml.models.pictures.scores import confusion as confusion
from probml.models.pictures.series import bands as bands
from probml.models.pictures.series import intervals as intervals
from probml.models.pictures.series import learning as learning
from probml.models.pictures.series import timeline as timeline
